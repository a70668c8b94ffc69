    push r14
    push rbx
    push rax
    mov rax,QWORD PTR [rdi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 13
    mov rax,QWORD PTR [rdi+0x78]
    mov rdx,QWORD PTR [rax+0x38]
    bswap rdx
    xor rdx,QWORD PTR [rdi+0x58]
    test dl,0x1
    jne 0
    mov r8d,DWORD PTR [rax+0x20]
    mov rcx,rdx
    shr rcx,0x10
    cmp dl,0x3
    ja 2
    cmp QWORD PTR [rdi+0x30],r8
    jne 4
    mov r9,QWORD PTR [rdi+0x38]
    movzx r10d,WORD PTR [r9+0x80]
    movzx ebx,WORD PTR [r9]
    cmp bx,r10w
    jne 5
    jmp 13
0:
    dec DWORD PTR [rdi+0xe0]
    mov eax,0x1
    je 16
1:
    xor edx,edx
    add rsp,0x8
    pop rbx
    pop r14
    ret
2:
    test dl,0xc
    sete r9b
    lea r10d,[rdx-0x10]
    cmp r10b,0x40
    setb r10b
    test r9b,r10b
    je 13
    cmp QWORD PTR [rdi+0x40],r8
    jne 7
    mov r10,QWORD PTR [rdi+0x48]
    mov r9,QWORD PTR [r10+0x198]
    cmp DWORD PTR [r10+0x190],0x1
    jne 8
3:
    movzx r10d,cx
    cmp QWORD PTR [r9+0x28],r10
    jbe 13
    mov r11,QWORD PTR [r9+0x20]
    movzx r8d,BYTE PTR [r11+r10*1]
    test r8b,r8b
    je 13
    mov r8,QWORD PTR [r9+0x10]
    mov r8,QWORD PTR [r8+r10*8]
    xor ebx,ebx
    xchg BYTE PTR [r11+r10*1],bl
    test bl,bl
    je 13
    movzx r10d,cx
    mov r11d,r10d
    shr r11d,0x6
    mov rbx,QWORD PTR [r9+0x30]
    mov r14d,0x1
    shl r14,cl
    lock or QWORD PTR [rbx+r11*8],r14
    mov rcx,QWORD PTR [r9+0x40]
    mov BYTE PTR [rcx+r11*1],0x1
    mov rcx,QWORD PTR [r9+0x50]
    shr r10d,0xa
    mov BYTE PTR [rcx+r10*1],0x1
    jmp 9
4:
    mov r9,QWORD PTR [rdi+0xa8]
    mov r10d,r8d
    bswap r10d
    mov edx,DWORD PTR [rdi+0xd4]
    mov r9,QWORD PTR [r9+0x10]
    mov r11d,r10d
    shr r11d,0x9
    and r11d,0x7ff8
    mov r11,QWORD PTR [r9+r11*1]
    test r11,r11
    je 13
    and r10d,0xfff
    shl r10d,0x4
    mov r9,QWORD PTR [r11+r10*1+0x8]
    mov rbx,QWORD PTR [r11+r10*1]
    mov r10,QWORD PTR [r11+r10*1+0x8]
    cmp r9,0x2
    jb 13
    cmp r10,r9
    jne 13
    cmp edx,ebx
    jne 13
    mov QWORD PTR [rdi+0x30],r8
    mov QWORD PTR [rdi+0x38],r9
    movzx r10d,WORD PTR [r9+0x80]
    movzx ebx,WORD PTR [r9]
    cmp bx,r10w
    je 13
5:
    movzx edx,r10w
    mov r11,QWORD PTR [r9+0x100]
    and edx,DWORD PTR [r9+0x110]
    shl edx,0x4
    mov r8,QWORD PTR [r11+rdx*1]
    mov rdx,QWORD PTR [r11+rdx*1+0x8]
    mov r14,rdx
    shr r14,0x28
    cmp cx,r14w
    jne 12
6:
    inc r10d
    mov WORD PTR [r9+0x80],r10w
    shr rdx,0x20
    jmp 10
7:
    mov r10,QWORD PTR [rdi+0xa8]
    mov r11d,r8d
    bswap r11d
    mov r9d,DWORD PTR [rdi+0xd4]
    mov r10,QWORD PTR [r10+0x10]
    mov ebx,r11d
    shr ebx,0x9
    and ebx,0x7ff8
    mov r14,QWORD PTR [r10+rbx*1]
    test r14,r14
    je 13
    and r11d,0xfff
    shl r11d,0x4
    mov r10,QWORD PTR [r14+r11*1+0x8]
    mov rbx,QWORD PTR [r14+r11*1]
    mov r11,QWORD PTR [r14+r11*1+0x8]
    cmp r10,0x2
    jb 13
    cmp r11,r10
    jne 13
    shr rbx,0x20
    cmp r9d,ebx
    jne 13
    mov QWORD PTR [rdi+0x40],r8
    mov QWORD PTR [rdi+0x48],r10
    mov r9,QWORD PTR [r10+0x198]
    cmp DWORD PTR [r10+0x190],0x1
    je 3
8:
    mov r10d,DWORD PTR [r9+0x100]
    movzx r8d,WORD PTR [r9+0x80]
    movzx r11d,cx
    cmp r10d,r11d
    jne 13
    cmp r8w,cx
    je 13
    mov r8,QWORD PTR [r9+0x180]
    mov r11d,DWORD PTR [r9+0x188]
    dec r11d
    and r11d,ecx
    movzx ecx,r11w
    mov r8,QWORD PTR [r8+rcx*8]
    inc r10d
    mov DWORD PTR [r9+0x100],r10d
9:
    shr dl,0x4
    or dl,0x80
10:
    mov ecx,DWORD PTR [rdi+0xd0]
    inc ecx
    mov DWORD PTR [rdi+0xd0],ecx
    mov r9,QWORD PTR [rdi+0x50]
    add r9,rax
    cmp r9,QWORD PTR [rdi+0x88]
    jne 11
    mov r9,QWORD PTR [rdi+0x80]
    xor BYTE PTR [rdi+0x58],0x1
11:
    mov QWORD PTR [rdi+0x78],r9
    movzx r9d,dl
    mov r10,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    movzx edx,BYTE PTR [r10+r9*4+0x1]
    cmp BYTE PTR [r10+r9*4],0x1
    jne 14
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 15
12:
    mov r11d,ecx
    sub r11d,r14d
    sub ebx,r10d
    cmp r11w,bx
    jae 13
    add r11d,r10d
    mov rdx,QWORD PTR [r9+0x100]
    mov r8d,r11d
    and r8d,DWORD PTR [r9+0x110]
    movzx r10d,r8w
    shl r10d,0x4
    mov r8,QWORD PTR [rdx+r10*1]
    mov rdx,QWORD PTR [rdx+r10*1+0x8]
    mov rbx,rdx
    shr rbx,0x28
    mov r10d,r11d
    cmp cx,bx
    je 6
13:
    mov ecx,0x1
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    and eax,0x1
    add rsp,0x8
    pop rbx
    pop r14
    ret
14:
    xor eax,eax
15:
    xor r9d,r9d
    cmp dl,0x1
    sete r9b
    add r8,rax
    add r8,r9
    add QWORD PTR [rsi],r8
    mov rax,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rdi+0x98]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov eax,0x1
    mov edx,0x1
    add rsp,0x8
    pop rbx
    pop r14
    ret
16:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    jmp 1
