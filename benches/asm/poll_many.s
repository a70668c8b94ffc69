    push rbp
    push r15
    push r14
    push rbx
    push rax
    mov r8,rdx
    mov rax,rsi
    mov rcx,QWORD PTR [rdi+0x90]
    mov ecx,DWORD PTR [rcx]
    cmp ecx,0x1
    jne 13
    test rax,rax
    je 20
    mov r9,QWORD PTR [rdi+0x78]
    xor edx,edx
    mov rsi,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    jmp 2
0:
    mov r9d,DWORD PTR [r9+0x2c]
    bswap r9d
1:
    inc rdx
    xor ebx,ebx
    cmp r10b,0x1
    sete bl
    add r11,r9
    add r11,rbx
    add QWORD PTR [r8],r11
    mov r9,rcx
    cmp rax,rdx
    je 17
2:
    mov r10d,DWORD PTR [r9+0x3c]
    bswap r10d
    xor r10d,DWORD PTR [rdi+0x158]
    test r10b,0xfd
    je 3
    test r10b,0x1
    jne 18
    test r10b,0xc
    jne 14
    lea ecx,[r10-0x10]
    cmp cl,0x3f
    ja 14
    mov ecx,DWORD PTR [r9+0x20]
    cmp QWORD PTR [rdi+0x40],rcx
    jne 4
    mov r11,QWORD PTR [rdi+0x48]
    jmp 5
3:
    mov r11d,DWORD PTR [r9+0x20]
    cmp QWORD PTR [rdi+0x30],r11
    jne 10
    mov rcx,QWORD PTR [rdi+0x38]
    movzx ebx,WORD PTR [rcx+0x80]
    movzx r11d,WORD PTR [rcx]
    cmp bx,r11w
    jne 11
    jmp 14
4:
    mov r11,QWORD PTR [rdi+0xa8]
    mov r14d,ecx
    bswap r14d
    mov r11,QWORD PTR [r11+0x10]
    mov ebx,r14d
    shr ebx,0x9
    and ebx,0x7ff8
    mov rbx,QWORD PTR [r11+rbx*1]
    test rbx,rbx
    je 14
    and r14d,0xfff
    shl r14d,0x4
    mov r11,QWORD PTR [rbx+r14*1+0x8]
    cmp r11,0x2
    jb 14
    add rbx,r14
    mov r14,QWORD PTR [rbx]
    shr r14,0x20
    cmp DWORD PTR [rdi+0x15c],r14d
    jne 14
    mov rbx,QWORD PTR [rbx+0x8]
    test r11,r11
    je 14
    cmp rbx,r11
    jne 14
    mov QWORD PTR [rdi+0x40],rcx
    mov QWORD PTR [rdi+0x48],r11
5:
    mov ecx,r10d
    shr ecx,0x10
    mov rbx,QWORD PTR [r11+0x190]
    test rbx,rbx
    je 6
    cmp ebx,0x1
    jne 14
    mov rbx,QWORD PTR [r11+0x198]
    cmp QWORD PTR [rbx+0x28],rcx
    jbe 14
    mov r11,QWORD PTR [rbx+0x20]
    movzx ebp,BYTE PTR [r11+rcx*1]
    test bpl,bpl
    je 14
    xor r14d,r14d
    xchg BYTE PTR [r11+rcx*1],r14b
    test r14b,r14b
    je 14
    mov r11,QWORD PTR [rbx+0x10]
    mov r11,QWORD PTR [r11+rcx*8]
    mov r14d,r10d
    shr r14d,0x16
    mov r15d,0x1
    shl r15,cl
    mov rcx,QWORD PTR [rbx+0x30]
    lock or QWORD PTR [rcx+r14*8],r15
    mov rcx,QWORD PTR [rbx+0x40]
    mov BYTE PTR [rcx+r14*1],0x1
    mov rcx,QWORD PTR [rbx+0x50]
    mov ebx,r10d
    shr ebx,0x1c
    mov BYTE PTR [rcx+rbx*1],0x1
    jmp 7
6:
    mov rbx,QWORD PTR [r11+0x198]
    mov ebp,DWORD PTR [rbx+0x100]
    movzx r11d,WORD PTR [rbx+0x80]
    cmp ebp,ecx
    jne 14
    cmp r11w,cx
    je 14
    mov r11,QWORD PTR [rbx+0x180]
    mov r14d,DWORD PTR [rbx+0x188]
    dec r14d
    and r14d,ecx
    mov r11,QWORD PTR [r11+r14*8]
    inc ecx
    mov DWORD PTR [rbx+0x100],ecx
7:
    shr r10b,0x4
    or r10b,0x80
    mov r14d,r10d
    mov rcx,QWORD PTR [rdi+0x50]
    add rcx,r9
    cmp rcx,QWORD PTR [rdi+0x88]
    jne 9
8:
    xor BYTE PTR [rdi+0x158],0x1
    mov rcx,QWORD PTR [rdi+0x80]
9:
    movzx ebx,r14b
    movzx r10d,BYTE PTR [rsi+rbx*4]
    cmp BYTE PTR [rsi+rbx*4+0x2],0x1
    je 0
    xor r9d,r9d
    jmp 1
10:
    mov rcx,QWORD PTR [rdi+0xa8]
    mov ebx,r11d
    bswap ebx
    mov rcx,QWORD PTR [rcx+0x10]
    mov r14d,ebx
    shr r14d,0x9
    and r14d,0x7ff8
    mov r14,QWORD PTR [rcx+r14*1]
    test r14,r14
    je 14
    and ebx,0xfff
    shl ebx,0x4
    mov rcx,QWORD PTR [r14+rbx*1+0x8]
    cmp rcx,0x2
    jb 14
    add r14,rbx
    mov rbx,QWORD PTR [r14]
    cmp DWORD PTR [rdi+0x15c],ebx
    jne 14
    mov rbx,QWORD PTR [r14+0x8]
    test rcx,rcx
    je 14
    cmp rbx,rcx
    jne 14
    mov QWORD PTR [rdi+0x30],r11
    mov QWORD PTR [rdi+0x38],rcx
    movzx ebx,WORD PTR [rcx+0x80]
    movzx r11d,WORD PTR [rcx]
    cmp bx,r11w
    je 14
11:
    shr r10d,0x10
    movzx r11d,bx
    mov r15,QWORD PTR [rcx+0x100]
    and r11d,DWORD PTR [rcx+0x128]
    shl r11d,0x4
    mov r14,QWORD PTR [r15+r11*1+0x8]
    mov r11,QWORD PTR [r15+r11*1]
    mov r15,r14
    shr r15,0x28
    cmp r10w,r15w
    je 12
    mov ebp,r10d
    sub ebp,r15d
    movzx r11d,WORD PTR [rcx]
    sub r11d,ebx
    cmp bp,r11w
    jae 14
    add ebp,ebx
    mov r11,QWORD PTR [rcx+0x100]
    mov ebx,ebp
    and ebx,DWORD PTR [rcx+0x128]
    movzx ebx,bx
    shl ebx,0x4
    mov r14,QWORD PTR [r11+rbx*1+0x8]
    mov r11,QWORD PTR [r11+rbx*1]
    mov r15,r14
    shr r15,0x28
    mov ebx,ebp
    cmp r10w,r15w
    jne 14
12:
    inc ebx
    mov WORD PTR [rcx+0x80],bx
    shr r14,0x20
    mov rcx,QWORD PTR [rdi+0x50]
    add rcx,r9
    cmp rcx,QWORD PTR [rdi+0x88]
    jne 9
    jmp 8
13:
    mov rsi,r8
    xor edx,edx
    jmp 16
14:
    mov QWORD PTR [rdi+0x78],r9
    test edx,edx
    je 15
    mov ecx,DWORD PTR [rdi+0x150]
    imul ecx,edx
    add ecx,DWORD PTR [rdi+0x154]
    mov DWORD PTR [rdi+0x154],ecx
    mov rsi,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rsi+0x2c],ecx
    mov rsi,QWORD PTR [rdi+0x98]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rsi],ecx
15:
    mov rsi,r8
16:
    mov rcx,rax
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    and eax,0x1
    jmp 22
17:
    mov r9,rcx
    mov rdx,rax
18:
    mov QWORD PTR [rdi+0x78],r9
    test edx,edx
    je 19
    mov eax,DWORD PTR [rdi+0x150]
    imul eax,edx
    add eax,DWORD PTR [rdi+0x154]
    mov DWORD PTR [rdi+0x154],eax
    mov rcx,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rdi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    mov eax,0x1
    jmp 22
19:
    mov eax,0x1
    test rdx,rdx
    jne 22
20:
    dec DWORD PTR [rdi+0x168]
    mov eax,0x1
    je 23
21:
    xor edx,edx
22:
    add rsp,0x8
    pop rbx
    pop r14
    pop r15
    pop rbp
    ret
23:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    jmp 21
