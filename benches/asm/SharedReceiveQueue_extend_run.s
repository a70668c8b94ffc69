    push rbp
    push r15
    push r14
    push r12
    push rbx
    mov rax,rdi
    mov edx,DWORD PTR [rsi+0x40]
    mov r10d,DWORD PTR [rsi+0x44]
    cmp edx,r10d
    jb 1
    mov ecx,DWORD PTR [rsi+0x28]
    dec ecx
    and ecx,DWORD PTR [rsi+0x38]
    mov r9,QWORD PTR [rsi+0x48]
    mov ebp,ecx
    shr ebp,0x6
    test r9,r9
    je 7
0:
    mov edx,DWORD PTR [rsi+0x50]
    mov r10,0xffffffffffffffff
    shl r10,cl
    mov r8,0xffffffffffffffff
    cmp ebp,edx
    cmovne r10,r8
    and r10,r9
    cmove r10,r9
    mov r11d,0x40
    mov edi,0x40
    tzcnt rdi,r10
    mov r10,r9
    mov ecx,edi
    shr r10,cl
    not r10
    tzcnt r11,r10
    shl edx,0x6
    add edx,edi
    lea r10d,[rdx+r11*1]
    mov ecx,r11d
    neg cl
    shr r8,cl
    mov ecx,edi
    shl r8,cl
    not r8
    and r8,r9
    mov QWORD PTR [rsi+0x48],r8
    mov DWORD PTR [rsi+0x40],edx
    mov DWORD PTR [rsi+0x44],r10d
    mov rcx,QWORD PTR [rsi+0x8]
    mov edi,DWORD PTR [rsi+0x30]
    imul rdi,rdx
    prefetcht0 BYTE PTR [rcx+rdi*1]
    mov rcx,QWORD PTR [rsi+0x10]
    prefetcht0 BYTE PTR [rcx+rdx*8]
    mov rcx,QWORD PTR [rsi+0x18]
    prefetcht0 BYTE PTR [rcx+rdx*1]
1:
    cmp edx,DWORD PTR [rsi+0x38]
    jne 5
    mov ecx,edx
    sub ecx,r10d
    mov r9,0xffffffffffffffff
    shr r9,cl
    mov ecx,edx
    shl r9,cl
    mov rcx,QWORD PTR [rsi+0x58]
    mov edi,edx
    shr edi,0x6
    mov r8,QWORD PTR [rcx+rdi*8]
    mov r10,r9
    not r10
    and r10,r8
    mov QWORD PTR [rcx+rdi*8],r10
    and r9,r8
    je 4
    and edx,0xffffffc0
    mov ecx,0xffff
    mov rdi,QWORD PTR [rsi+0x8]
    mov r8d,DWORD PTR [rsi+0x30]
    add ecx,DWORD PTR [rsi+0x28]
    cmp DWORD PTR [rsi+0x2c],0x1
    jbe 3
    movups xmm0,XMMWORD PTR [data]
2:
    mov r10,r9
    tzcnt r9,r9
    mov r11d,edx
    or r11d,r9d
    add r9d,edx
    inc r9d
    and r9d,ecx
    imul r11,r8
    rol r9w,0x8
    mov WORD PTR [rdi+r11*1+0x2],r9w
    movups XMMWORD PTR [rdi+r11*1+0x20],xmm0
    lea r9,[r10-0x1]
    and r9,r10
    jne 2
    jmp 4
3:
    mov r10,r9
    tzcnt r9,r9
    mov r11d,edx
    or r11d,r9d
    add r9d,edx
    inc r9d
    and r9d,ecx
    rol r9w,0x8
    imul r11,r8
    mov WORD PTR [rdi+r11*1+0x2],r9w
    lea r9,[r10-0x1]
    and r9,r10
    jne 3
4:
    mov ecx,DWORD PTR [rsi+0x44]
    mov DWORD PTR [rsi+0x38],ecx
    mov QWORD PTR [rsi+0x40],0x0
5:
    mov BYTE PTR [rax],0x1f
6:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    ret
7:
    mov rdx,QWORD PTR [rsi+0x68]
    lea r8,[rdx+0x30]
    mov r9d,ebp
    and r9d,0xffffffc0
    add r9d,0x40
    mov edi,DWORD PTR [rdx+0x48]
    cmp edi,r9d
    cmovb r9d,edi
    cmp ebp,r9d
    jae 10
    mov rdx,QWORD PTR [rdx+0x40]
    mov edi,ebp
    mov r10d,r9d
    jmp 9
8:
    inc rdi
    cmp r10,rdi
    je 10
9:
    movzx r9d,BYTE PTR [rdx+rdi*1]
    test r9b,r9b
    je 8
    mov BYTE PTR [rdx+rdi*1],0x0
    mov r11,QWORD PTR [r8]
    xor r9d,r9d
    xchg QWORD PTR [r11+rdi*8],r9
    mov DWORD PTR [rsi+0x50],edi
    mov QWORD PTR [rsi+0x48],r9
    test r9,r9
    je 8
    jmp 0
10:
    mov r14,rax
    mov r15,rsi
    lea rbx,[rsi+0x48]
    mov r12d,ecx
    mov edx,ecx
    shr edx,0xc
    mov rdi,rbx
    mov rsi,r8
    call _ZN8mlx5_wqe7receive4free6Claims11take_behind
    test al,al
    je 11
    mov r9,QWORD PTR [rbx]
    mov rax,r14
    mov rsi,r15
    mov ecx,r12d
    jmp 0
11:
    mov rax,r14
    mov BYTE PTR [r14],0x0
    mov WORD PTR [r14+0x1],0x0
    mov BYTE PTR [r14+0x3],0x0
    movabs rcx,0x100000000
    mov QWORD PTR [r14+0x4],rcx
    jmp 6
